"""The documentation's site: the pages of docs/, and those that are generated from the code."""
