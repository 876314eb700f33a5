import * as z from 'zod/mini';
import { shorten } from '../base/printable.ts';
import { check, quotingItself } from '../base/validation.ts';
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

/** What an issue about the address of a proxy asks for. */
export const PROXY_EXPECTED = `expected the address of an HTTP proxy such as ${EXAMPLE}`;

/** Says of an address that it is none of a proxy. */
export const notAProxy = (value: string): string => `${PROXY_EXPECTED}, got ${shorten(withoutSecrets(value))}`;

/** Returns what is wrong with the address of a proxy, if anything is. It quotes no user and no password. */
export function issueOfProxy(value: string): string | undefined {
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

const proxySchema = z.string({ error: PROXY_EXPECTED }).check(quotingItself(issueOfProxy));

const variablesSchema = z.object({
  HTTPS_PROXY: z.optional(proxySchema),
  HTTP_PROXY: z.optional(proxySchema),
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
