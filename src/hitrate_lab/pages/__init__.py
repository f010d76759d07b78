"""The tables and pictures that README and documentation show of results, and of the code.

    make pages

A generator is a function from the repository's root to `Made`: blocks of pages and pictures, with
the paths where they go. `registry` has all of them; a test says which files are stale.
"""
