"""What every step of a build needs: programs that run, files of other machines, tables of recipes."""
