"""An image's documents: what it is made of, under which licences, and how large each part is. Signed with it."""
