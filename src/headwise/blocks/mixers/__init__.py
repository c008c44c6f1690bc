"""What can stand in the place of attention: sparse, linear, recurrent, Fourier and other token mixers."""
