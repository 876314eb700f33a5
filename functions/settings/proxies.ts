import * as z from 'zod/mini';
import { shorten } from '../base/printable.ts';
import { check, matching, sayingItself } from '../base/validation.ts';
import { hasCredentials } from '../flow-service/addresses.ts';
import { rangeOf } from '../flow-service/proxy.ts';
import type { Proxies } from '../flow-service/types.ts';
import { withoutSecrets } from './service-address.ts';

/** The variables that name the proxies of a process. */
export interface ProxyVariables {
  readonly HTTPS_PROXY?: string;
  readonly HTTP_PROXY?: string;
  readonly NO_PROXY?: string;
}

const EXAMPLE = 'http://proxy.example.com:3128';

/** The address of a proxy. Without a scheme, `proxy.example.com:3128` is one too. Undefined if it is none. */
export const proxyAt = (value: string): URL | undefined =>
  URL.parse(/^[a-z][\w+.-]*:\/\//i.test(value) ? value : `http://${value}`) ?? undefined;

const EXPECTED = `expected the address of an HTTP proxy such as ${EXAMPLE}`;

const notAProxy = (value: string): string => `${EXPECTED}, got ${shorten(withoutSecrets(value))}`;

/** Returns what is wrong with the address of a proxy, if anything is. It quotes no user and no password. */
function issueOfProxy(value: string): string | undefined {
  const url = proxyAt(value);
  const isProxy = url !== undefined && /^https?:$/.test(url.protocol) && url.hostname !== '';
  if (!isProxy || url.pathname !== '/' || url.search !== '' || url.hash !== '') {
    return notAProxy(value);
  }
  try {
    decodeURIComponent(`${url.username}${url.password}`);
    return undefined;
  } catch {
    return 'expected a user and a password in which a percent sign is written as %25';
  }
}

/**
 * A text whose issue quotes what may be quoted.
 * @param pattern for the JSON schema.
 */
const addressSchema = (issueOf: (value: string) => string | undefined, pattern?: RegExp) => {
  const text = z.string({ error: EXPECTED }).check(sayingItself(issueOf, true));
  return pattern === undefined ? text : text.check(z.meta({ pattern: pattern.source }));
};

const WITHOUT_LOGIN = /^https?:\/\/[^\s/?#@]+\/?$/;

/**
 * The address of the proxy of a deployment.
 * @internal
 */
export const deployedProxySchema = addressSchema((value) => {
  const url = proxyAt(value);
  if (url !== undefined && hasCredentials(url)) {
    return 'expected no user and no password, because a configuration is no place for a secret: let the proxy serve the functions without a login';
  }
  return WITHOUT_LOGIN.test(value) ? issueOfProxy(value) : notAProxy(value);
}, WITHOUT_LOGIN);

const EXCEPTION = 'a host, a domain, or a range of addresses such as 10.0.0.0/8';

/**
 * What goes past the proxy of a deployment.
 * @internal
 */
export const exceptionSchema = matching(
  EXCEPTION,
  /^(\*|(\*?\.)?[\w-]+(\.[\w-]+)*(:\d{1,5}|\/\d{1,3})?|\[?[\da-fA-F:]+(\]:\d{1,5}|\/\d{1,3})?)$/,
).check(z.refine((entry) => !/\/\d+$/.test(entry) || rangeOf(entry) !== undefined, { error: `expected ${EXCEPTION}` }));

const variablesSchema = z.object({
  HTTPS_PROXY: z.optional(addressSchema(issueOfProxy)),
  HTTP_PROXY: z.optional(addressSchema(issueOfProxy)),
  NO_PROXY: z.optional(z.string()),
});

/**
 * Reads the proxies of an environment. A name in lower case goes before the same in upper case, and an empty value is
 * none, as for curl. The issues quote no user and no password.
 */
export function checkProxies(env: Readonly<Record<string, string | undefined>>): {
  readonly issues: readonly string[];
  readonly proxies: Proxies;
} {
  const given = (name: string) => env[name.toLowerCase()]?.trim() || env[name]?.trim() || undefined;
  const variables = {
    HTTPS_PROXY: given('HTTPS_PROXY'),
    HTTP_PROXY: given('HTTP_PROXY'),
    NO_PROXY: given('NO_PROXY'),
  };
  const { issues, data } = check(variablesSchema, variables, '');
  const proxy = (value: string | undefined) => (value === undefined ? undefined : proxyAt(value));
  const except = data?.NO_PROXY?.split(/[\s,]+/).filter((entry) => entry !== '');
  return { issues, proxies: { https: proxy(data?.HTTPS_PROXY), http: proxy(data?.HTTP_PROXY), except } };
}

/** The same variables without the users and the passwords of proxies. */
export function shownVariables(variables: Record<string, string>): Record<string, string> {
  const shown = { ...variables };
  for (const name of ['HTTPS_PROXY', 'HTTP_PROXY']) {
    const url = proxyAt(variables[name] ?? '');
    if (url !== undefined) shown[name] = url.origin;
  }
  return shown;
}

/** The variables from which {@link checkProxies} reads the same. */
export const variablesOf = ({ https, http, except = [] }: Proxies): ProxyVariables => ({
  ...(https && { HTTPS_PROXY: https.href.replace(/\/$/, '') }),
  ...(http && { HTTP_PROXY: http.href.replace(/\/$/, '') }),
  ...(except.length > 0 && { NO_PROXY: except.join(',') }),
});
