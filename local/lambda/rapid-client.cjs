'use strict';

/**
 * Replaces two modules of AWS's runtime interface client (`aws-lambda-ric`), and no other importer's. It is loaded into
 * a function's process before the client. https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html
 *
 * - `rapid-client.node`, a native module whose build needs cmake. This module offers its three operations of the
 *   Runtime API over plain HTTP.
 * - `node:http`, with which the client reports errors from outside the handler. Here each request carries the secret
 *   that the Runtime API demands.
 *
 * It is plain JavaScript: a function's process must load no more than it would in Lambda, and so no TypeScript
 * stripper.
 */

const { registerHooks } = require('node:module');
const { Agent, request } = require('node:http');
const { pathToFileURL } = require('node:url');

/** The client is the program of this process. */
const clientUrl = pathToFileURL(process.argv[1]).href;

const hooks = registerHooks({
  resolve(specifier, context, nextResolve) {
    const isNative = specifier === './rapid-client.node';
    const isHttp = specifier === 'node:http' && context.parentURL === clientUrl;
    if (!isNative && !isHttp) return nextResolve(specifier, context);
    if (isNative) hooks.deregister(); // The client loads it last.
    return { url: pathToFileURL(__filename).href, format: 'commonjs', shortCircuit: true };
  },
});

const [hostname, port] = (process.env.AWS_LAMBDA_RUNTIME_API ?? '').split(':');
const secret = process.env.FLOWDROP_RUNTIME_SECRET ?? '';
delete process.env.FLOWDROP_RUNTIME_SECRET; // Lambda has no such variable.
const agent = new Agent({ keepAlive: true, maxSockets: 1 });

function requestWithSecret(options, onResponse) {
  return request({ ...options, headers: { ...options.headers, 'flowdrop-runtime-secret': secret } }, onResponse);
}

function call(method, path, body, headers = {}) {
  return new Promise((resolve, reject) => {
    const outgoing = requestWithSecret(
      { hostname, port, method, path: `/2018-06-01/runtime/invocation/${path}`, agent, headers },
      (response) => {
        const chunks = [];
        response.on('data', (chunk) => chunks.push(chunk));
        response.on('error', reject);
        response.on('end', () => resolve({ bodyJson: Buffer.concat(chunks).toString(), headers: response.headers }));
      },
    );
    outgoing.on('error', reject);
    outgoing.end(body);
  });
}

/** The native module posts results synchronously. Here the next invocation waits until the result is posted. */
let posted = Promise.resolve();

module.exports = {
  Agent,
  request: requestWithSecret,
  next: () => posted.then(() => call('GET', 'next')),
  done(id, body) {
    posted = call('POST', `${id}/response`, body, { 'content-type': 'application/json' });
  },
  error(id, body) {
    posted = call('POST', `${id}/error`, body, { 'content-type': 'application/json' });
  },
};
