"""Whether jobs fail on a new image more than on the old one: ended jobs -> which failed -> tally -> comparison. Pure."""
