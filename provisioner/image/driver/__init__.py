"""The GPU driver as a layer over the base: built or obtained, signed, trimmed, and known by what it is made of."""
