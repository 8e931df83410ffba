"""Commands of kubectl's plugin that concern servers, their Maintenances and their pools at once."""
