"""Variants of one experiment, trained over seeds and compared: values here, rendering and drawing apart."""
