"""Unified kernel images: kernel, stage-1 and command line as one EFI program that firmware checks before it runs."""
