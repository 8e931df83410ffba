"""The pages, made of what the copies hold now, as markup that is complete without a script; `service` serves them."""
