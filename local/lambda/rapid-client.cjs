'use strict';

/**
 * Replaces `rapid-client.node`, the native module of AWS's runtime interface client (`aws-lambda-ric`), whose build needs
 * cmake. It offers the same three operations of the Runtime API over plain HTTP. It is loaded into a function's process
 * before the client. https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html
 *
 * It is plain JavaScript: a function's process must load no more than it would in Lambda, and so no TypeScript stripper.
 */

const { registerHooks } = require('node:module');
const { Agent, request } = require('node:http');
const { pathToFileURL } = require('node:url');

const hooks = registerHooks({
  resolve(specifier, context, nextResolve) {
    if (specifier !== './rapid-client.node') return nextResolve(specifier, context);
    hooks.deregister();
    return { url: pathToFileURL(__filename).href, format: 'commonjs', shortCircuit: true };
  },
});

const [hostname, port] = (process.env.AWS_LAMBDA_RUNTIME_API ?? '').split(':');
const agent = new Agent({ keepAlive: true, maxSockets: 1 });

function call(method, path, body, headers = {}) {
  return new Promise((resolve, reject) => {
    const outgoing = request(
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
  next: () => posted.then(() => call('GET', 'next')),
  done(id, body) {
    posted = call('POST', `${id}/response`, body, { 'content-type': 'application/json' });
  },
  error(id, body) {
    posted = call('POST', `${id}/error`, body, { 'content-type': 'application/json' });
  },
};
