"""What training takes on machines that are not at hand: memory, communication, time; files that start it there."""
