"""Secondary structure: the states of DSSP (Kabsch and Sander 1983) and their reduction to three.

Eight states: H α-helix, G 3-10 helix, I π-helix, E strand, B bridge, T turn, S bend, and L (or C) for the rest.
Three states: H helix, E strand, C coil.
"""

from __future__ import annotations

STATES = "HGIEBTSL"
HELIX, STRAND, COIL = "H", "E", "C"
REDUCTION = {"H": HELIX, "G": HELIX, "I": HELIX, "E": STRAND, "B": STRAND}  # all others: coil


def reduce_states(states: str) -> str:
    """Reduce eight states to three: H, G and I are helix, E and B strand, the others coil.

    >>> reduce_states("LHGIEBTS")
    'CHHHEECC'
    """
    return "".join(REDUCTION.get(state, COIL) for state in states)
