"""One model on several processes: the group that they form, and strategies that divide the work."""
