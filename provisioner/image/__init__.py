"""Images: recipe -> base -> root and stage-1 -> manifest -> signature -> store -> Image object."""
