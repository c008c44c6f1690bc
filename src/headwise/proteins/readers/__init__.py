"""Readers of protein files, one a format: PDB, mmCIF, A3M, Stockholm, FASTA; and a PDB writer."""
