"""Sessions over HTTP. Nothing is imported here: `satchel keys` needs no server, and a server no command line.

A request passes ``protocol`` (HTTP/1.1 with an end to patience), ``gate`` (request id, identity, rate, metrics, log, last word on
errors), Litestar's router (``app``), and a handler of ``resources``, which decodes, makes one call of a manager, and encodes.

=================  ====================================================================================================
``route``          what a route is          ``table``      all of them: what OpenAPI, tests and clients go through
``resources/``     one module for each resource: handlers and their routes
``call``           one request, decoded     ``parameters``  of queries     ``bodies``, ``deadlines``   read and taken apart
``answers``        what is sent back        ``problems``    errors as problems: the one place that knows a status
``streams``        server-sent events       ``given``, ``shapes``      the JSON that goes in, and out    ``openapi``  the document
``identity``       who is calling           ``keys``        API keys, ``moved_keys`` in another store       ``tokens``     JWT
``service``        what requests share      ``rates``, ``limits``          how much one caller may do
``traced``         a span for each request, around all of it, if asked for
``settings``       toml, variables, flags   ``metrics``, ``logs``, ``health``   what an operator sees
``serve``          one server process       ``fleet``       several of them on one port      ``protocol``
=================  ====================================================================================================

A new route: a handler and a ``Route`` in its resource's module, its shapes in ``given`` and ``shapes``, ``make openapi``.
"""
