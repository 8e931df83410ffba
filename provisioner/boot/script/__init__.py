"""What a server boots, as an iPXE script: chosen, rendered, kept on disk for nginx."""
