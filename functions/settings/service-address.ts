import * as z from 'zod/mini';
import { shorten } from '../base/printable.ts';
import { quotingItself } from '../base/validation.ts';
import { isHttpsOrLoopback } from '../flow-service/addresses.ts';

/** Returns what is wrong with the base address of a flow service, if anything is. */
export function issueOfBaseUrl(value: string): string | undefined {
  const url = URL.parse(value);
  if (url === null) return `expected a URL such as https://flows.example.com, got ${shorten(withoutSecrets(value))}`;
  if (!isHttpsOrLoopback(url)) {
    return `expected https:, or http: on a loopback host, got ${shorten(withoutSecrets(value))}`;
  }
  // These parts may contain a secret, so the messages do not quote them.
  if (url.username !== '' || url.password !== '') return 'expected no user name or password in the URL';
  if (url.search !== '' || url.hash !== '') return 'expected a URL without query and fragment';
  return undefined;
}

/** Host of `baseUrl` in the cdk.json of this repository. */
const EXAMPLE_HOST = 'flows.example.com';

/** Returns a warning if a base address is still the example of this repository. */
export const warningOfExampleHost = ({ hostname, href }: URL): string | undefined =>
  hostname === EXAMPLE_HOST
    ? `baseUrl is still the example, ${href}. No flow is made until it is the URL of your flow service.`
    : undefined;

/** An address as it may be quoted, although it is none: without what may be a user, a password or a key. */
export const withoutSecrets = (url: string) => url.replace(/^([^/]*\/\/)?.*@/s, '$1...@').replace(/[?#].*$/s, '?...');

/**
 * The base address of the flow service as a URL whose path has no slash at its end.
 * @internal
 */
export const baseUrlSchema = z.pipe(
  z.string({ error: 'expected a URL such as https://flows.example.com' }).check(quotingItself(issueOfBaseUrl)),
  z.transform((value) => {
    const url = new URL(value);
    url.pathname = url.pathname.replace(/\/+$/, '');
    return url;
  }),
);
