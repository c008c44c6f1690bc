"""Models as graphs of tensor operations: `torch.export` programs, and ONNX models that onnxruntime runs.

`graph` traces a graph, `forms` lists the graphs of a model (`steps` those of one that generates, with the KV cache of
`cache`), `write` writes and compares them, `engine` runs ONNX models in the place of a model of torch.
"""
