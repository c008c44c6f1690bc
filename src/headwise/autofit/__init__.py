"""Auto-fit (`headwise fit`): recognise a user's data, choose a model for the time, train it and compare it with a
baseline.

`columns` describes the columns of a table, `recognise` finds task and format from the content of files, `plan` chooses
tokeniser, model and schedule, `baselines` has the predictors that anyone would try first, `model_card` writes the
run's README.md, and `fit` does all of it.
"""
