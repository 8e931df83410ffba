"""A rack's cache: nginx in front, which serves what is kept, and the fetcher behind it, which gets each byte from a
boot host once for all who ask and keeps what is what its name says."""
