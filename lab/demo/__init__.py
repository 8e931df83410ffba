"""The demo: a rack that boots, told line by line."""
