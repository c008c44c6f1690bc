"""Access control and limits shared by the studio and other HTTP services."""
