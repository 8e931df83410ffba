"""`kubectl provision rollout`: a pool's way to another image, begun, watched, held up and taken back by people."""
