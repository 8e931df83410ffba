"""`kubectl provision why`: one screen about one server."""
