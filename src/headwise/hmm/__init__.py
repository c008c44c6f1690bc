"""Hidden Markov models: counts, smoothing, Viterbi decoding."""
