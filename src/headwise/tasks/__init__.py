"""What is learnt: data, loss and scores of each task, one file a task."""
