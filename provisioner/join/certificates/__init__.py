"""The certificates of a joined server's kubelet: which requests are approved, and by whom they were made."""
