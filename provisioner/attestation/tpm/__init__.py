"""Structures of the TPM 2.0 Library (Part 2), as bytes. Each parser takes what a stranger sent."""
