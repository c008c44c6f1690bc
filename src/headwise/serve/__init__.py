"""The service: continuous batching of requests, and the HTTP interface in front of it."""
