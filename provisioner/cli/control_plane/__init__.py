"""What a control plane must have for this project."""
