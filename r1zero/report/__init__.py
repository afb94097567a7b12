"""What runs and evaluations looked like, on one HTML page that needs no network. See README.md beside this file."""
