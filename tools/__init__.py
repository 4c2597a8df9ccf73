"""Small programs for people who build and release gpuherd; standard library only."""
