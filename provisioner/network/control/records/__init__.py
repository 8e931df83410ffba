"""What the API says of tenants and DPUs, read into facts, and how what follows is written back."""
