import * as z from 'zod/mini';
import { matching, quotingItself } from '../functions/base/validation.ts';
import { hasCredentials } from '../functions/flow-service/addresses.ts';
import { rangeOf } from '../functions/flow-service/proxy.ts';
import { issueOfProxy, notAProxy, PROXY_EXPECTED, proxyAt } from '../functions/settings/proxies.ts';

const WITHOUT_LOGIN = /^https?:\/\/[^\s/?#@]+\/?$/;

const issueOfDeployedProxy = (value: string): string | undefined => {
  const url = proxyAt(value);
  if (url !== undefined && hasCredentials(url)) {
    return 'expected no user and no password, because a configuration is no place for a secret: let the proxy serve the functions without a login';
  }
  return WITHOUT_LOGIN.test(value) ? issueOfProxy(value) : notAProxy(value);
};

/**
 * The address of the proxy of a deployment.
 * @internal
 */
export const deployedProxySchema = z
  .string({ error: PROXY_EXPECTED })
  .check(quotingItself(issueOfDeployedProxy), z.meta({ pattern: WITHOUT_LOGIN.source }));

const EXCEPTION = 'a host, a domain, or a range of addresses such as 10.0.0.0/8';

/**
 * What goes past the proxy of a deployment.
 * @internal
 */
export const exceptionSchema = matching(
  EXCEPTION,
  /^(\*|(\*?\.)?[\w-]+(\.[\w-]+)*(:\d{1,5}|\/\d{1,3})?|\[?[\da-fA-F:]+(\]:\d{1,5}|\/\d{1,3})?)$/,
).check(z.refine((entry) => !/\/\d+$/.test(entry) || rangeOf(entry) !== undefined, { error: `expected ${EXCEPTION}` }));
