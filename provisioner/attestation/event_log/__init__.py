"""The log in which firmware says what it measured: read, replayed, put into words, compared."""
