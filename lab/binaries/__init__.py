"""The programs of a control plane: found, downloaded or built."""
