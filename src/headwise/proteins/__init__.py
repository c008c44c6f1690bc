"""Proteins: residues, structures, alignments, their files and metrics, and generated chains."""
