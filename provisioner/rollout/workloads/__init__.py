"""Whether more jobs fail on a new image than on the old one: ended jobs → which failed → tally → comparison. Pure."""
