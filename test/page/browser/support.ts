import { existsSync, readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { AxeResults } from 'axe-core';
import {
  type Browser,
  type BrowserContext,
  type BrowserContextOptions,
  type CDPSession,
  chromium,
  type Page,
} from 'playwright-core';
import { afterAll, beforeAll, describe, expect } from 'vitest';
import type { PipelineOptions } from '../../../local/pipeline.ts';
import type { Deployment } from '../../../operations/deployment.ts';
import { buildPage } from '../../../page/build.ts';
import { type ServedPage, servePage } from '../../../page/server/serve-page.ts';
import { Operated } from '../../operations/support.ts';

/** Where Debian and Ubuntu install it. */
const CHROMIUM = ['/usr/bin/chromium', '/usr/bin/chromium-browser'].find((path) => existsSync(path));

if (CHROMIUM === undefined) {
  process.stderr.write('The tests of the page in a browser are skipped: there is no /usr/bin/chromium here.\n');
}

/**
 * Chromium would load pages of its own into each window, for the suggestions of its address bar: a third of what a
 * window takes. And it would start a process ahead for the next page. The list replaces Playwright's, so it repeats what
 * keeps Chromium off the network.
 */
const FEATURES_DISABLED = [
  ...['WebUIOmniboxPopup', 'WebUIOmniboxAimPopup', 'DestroyProfileOnBrowserClose', 'PaintHolding'],
  ...['OptimizationHints', 'NetworkTimeServiceQuerying', 'AimEnabled', 'PreconnectToSearch', 'MediaRouter'],
  'SpareRendererForSitePerProcess',
];

/** WebGL is drawn by the processor: there may be no graphics card. Nothing goes out to the network by itself. */
const BROWSER_ARGUMENTS = [
  ...['--no-sandbox', '--disable-gpu', '--enable-unsafe-swiftshader'],
  ...['--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update'],
  ...['--disable-sync', '--disable-default-apps', '--disable-domain-reliability', '--no-default-browser-check'],
  // Other hosts have no address: what a page asks of them does not leave this machine.
  '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1',
  `--disable-features=${FEATURES_DISABLED.join(',')}`,
];

/** Time for what is awaited in the browser, in milliseconds. The machine may be slow. */
export const PATIENCE_MS = 120_000;

/** Time for a pipeline and a browser to start, in milliseconds. */
export const START_MS = 600_000;
/** Time for a test in the browser, in milliseconds. Each takes seconds where nothing else is at work. */
const TEST_MS = 900_000;

/**
 * Routes for pictures, texts, notes, models and jobs, and for files whose flows fail. A note comes back as it is.
 * Pictures, and files below `chain/`, begin chains. The models of previews wait to be approved.
 */
export const ROUTES: PipelineOptions['routes'] = [
  { name: 'doubled', input: 'file', template: 'bytes_echo', parameters: { copies: 2 }, prefixes: ['chain/'] },
  { name: 'checked', after: 'doubled', input: 'file', template: 'bytes_echo' },
  { name: 'packed', after: 'checked', inputs: 'all', input: 'file', template: 'bytes_echo' },
  { name: 'preview', input: 'file', template: 'model_generate_fromimage', suffixes: ['.preview.png'] },
  { name: 'refined', after: 'preview', input: 'file', template: 'model_optimize', review: true },
  {
    name: 'pictures',
    input: 'file',
    template: 'model_generate_fromimage',
    suffixes: ['.png', '.jpg'],
    overrides: true,
  },
  { name: 'optimised', after: 'pictures', input: 'file', template: 'model_optimize' },
  { name: 'prompts', input: 'text', template: 'model_generate_fromprompt', suffixes: ['.txt'] },
  { name: 'notes', input: 'file', template: 'bytes_echo', suffixes: ['.md'] },
  { name: 'models', input: 'file', template: 'model_optimize', suffixes: ['.glb'] },
  { name: 'named', input: 'file', template: 'bytes_echo', prefixes: ['named/'], alias: 'models/{folder}/{name}{ext}' },
  { name: 'echoes', input: 'file', template: 'bytes_echo', prefixes: ['echo/'], overrides: true, makes: ['*/*'] },
  { name: 'views', input: 'file', template: 'bytes_echo', jobs: 'multiview/' },
];

/** A picture, of which the stand-in makes a model. */
export const ROBOT = { name: 'robot.png', type: 'image/png', body: readFileSync('examples/robot.png') };

/** The feed looks often, so that the tests are quick. */
const PACE = { lookMs: 200, statusMs: 500, windowMs: 7 * 24 * 60 * 60_000, rowsMax: 10_000 };

/** The short form of axe: each page that is checked takes less than half as long to read it. */
const AXE = readFileSync('node_modules/axe-core/axe.min.js', 'utf8');

let built: ReturnType<typeof buildPage> | undefined;
/** The app, built once for all tests of a file. */
export const appFiles = (): ReturnType<typeof buildPage> => {
  built ??= buildPage();
  return built;
};

/** A browser with an empty profile. */
async function startBrowser(): Promise<{ readonly browser: Browser } & AsyncDisposable> {
  if (CHROMIUM === undefined) throw new Error('There is no Chromium here.');
  const home = await mkdtemp(join(tmpdir(), 'flowdrop-browser-'));
  // Chromium keeps caches below the user's home too.
  const env = { PATH: process.env.PATH ?? '', HOME: home, XDG_CONFIG_HOME: home, XDG_CACHE_HOME: home };
  const browser = await chromium.launch({ executablePath: CHROMIUM, args: BROWSER_ARGUMENTS, env });
  return {
    browser,
    async [Symbol.asyncDispose]() {
      await browser.close();
      await rm(home, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}

/** A page, the pipeline that it is of, and a browser. They are there once `start` has run, before the first test. */
export class Shown {
  readonly closing = new AsyncDisposableStack();
  #operated: Operated | undefined;
  #page: ServedPage | undefined;
  #browser: Browser | undefined;

  /** @param deployment that the page is of. Default: a pipeline without uploads. */
  async start(deployment?: Deployment): Promise<void> {
    if (deployment === undefined) this.#operated = this.closing.use(await Operated.start({ routes: ROUTES }));
    this.#page = await servePage(deployment ?? this.operated.deployment, { appFiles, pace: PACE });
    this.closing.defer(() => this.stopPage());
    this.#browser = this.closing.use(await startBrowser()).browser;
  }

  get operated(): Operated {
    return started(this.#operated);
  }

  /** Opens the page in a window. @param options of the window: its size, its colour scheme. */
  open(options: BrowserContextOptions = {}): Promise<Visit> {
    return Visit.open(started(this.#browser), this.url, options);
  }

  /** Ends the server of the page. The pipeline goes on. */
  stopPage(): Promise<void> {
    return started(this.#page).close();
  }

  /** Starts it again at the same port, as the next run does. */
  async startPage(): Promise<void> {
    const { port } = new URL(this.url);
    this.#page = await servePage(this.operated.deployment, { appFiles, pace: PACE, port: Number(port) });
  }

  /** The address of the page, with the key. */
  get url(): string {
    return started(this.#page).url;
  }
}

function started<T>(value: T | undefined): T {
  if (value === undefined) throw new Error('The pipeline and the browser start before the first test.');
  return value;
}

/**
 * Tests of the page in a browser. Without a browser here, they are counted as skipped.
 * @param prepare makes the deployment before the first test. Default: a pipeline without uploads.
 */
export function describeInBrowser(
  name: string,
  tests: (shown: Shown) => void,
  prepare: (shown: Shown) => Promise<Deployment | undefined> = async () => undefined,
): void {
  describe.skipIf(CHROMIUM === undefined)(name, { timeout: TEST_MS }, () => {
    const shown = new Shown();
    beforeAll(async () => shown.start(await prepare(shown)), START_MS);
    afterAll(() => shown.closing.disposeAsync());
    tests(shown);
  });
}

/** A window of the browser that watches for what must not happen. */
export class Visit implements AsyncDisposable {
  readonly page: Page;
  /** Violations of the policy, errors of scripts, and requests to other hosts. */
  readonly complaints: string[] = [];
  readonly #context: BrowserContext;
  #session: Promise<CDPSession> | undefined;

  /** Opens the page. @param options of the window: its size, its colour scheme. */
  static async open(browser: Browser, url: string, options: BrowserContextOptions): Promise<Visit> {
    const context = await browser.newContext({ reducedMotion: 'reduce', ...options });
    context.setDefaultTimeout(PATIENCE_MS);
    const visit = new Visit(context, await context.newPage());
    await visit.#watch(new URL(url).origin);
    await visit.page.goto(url);
    await visit.page.getByText('Live', { exact: true }).waitFor();
    return visit;
  }

  private constructor(context: BrowserContext, page: Page) {
    this.#context = context;
    this.page = page;
  }

  async #watch(origin: string): Promise<void> {
    // A route would stop each request until Playwright lets it go, and would turn off the cache.
    this.#context.on('request', (request) => {
      const url = new URL(request.url());
      // The viewer of PDFs is an extension of the browser.
      if (url.origin === origin || ['blob:', 'data:', 'chrome:', 'chrome-extension:'].includes(url.protocol)) return;
      this.complaints.push(`request to ${url.href}`);
    });
    await this.#context.exposeFunction('complainAbout', (text: string) => void this.complaints.push(text));
    await this.#context.addInitScript(() => {
      document.addEventListener('securitypolicyviolation', ({ violatedDirective, blockedURI, sourceFile, sample }) => {
        const { complainAbout } = window as unknown as { complainAbout(text: string): void };
        complainAbout(`policy: ${violatedDirective} blocked ${blockedURI} of ${sourceFile} ${sample}`);
      });
    });
    this.page.on('pageerror', (error) => void this.complaints.push(`error: ${error.stack}`));
    this.page.on('response', async (response) => {
      // The console does not show what a server says of its failure.
      if (response.status() >= 500) this.complaints.push(`${response.url()}: ${await response.text()}`);
    });
    this.page.on('console', (message) => {
      if (message.type() === 'error') this.complaints.push(`console: ${message.text()} ${message.location().url}`);
    });
  }

  /** The row of a file in the list. */
  row(name: string) {
    return this.page.locator('upload-list .row a').filter({ has: this.page.getByText(name, { exact: true }) });
  }

  /** Waits until the list shows a file in a state. */
  async shows(name: string, state: string): Promise<void> {
    // The line of a chain names states of its stages too.
    const word = this.page.locator('.state-word').filter({ hasText: new RegExp(`^\\s*${state}\\s*$`) });
    await this.row(name).filter({ has: word }).waitFor();
  }

  /** The button of a chain that shows its later stages. */
  toggle(name: string) {
    return this.page.getByRole('button', { name: `Later stages of ${name}` });
  }

  /** Opens the detail of a file. */
  async openDetail(name: string): Promise<void> {
    await this.row(name).click();
    await this.page.locator('upload-detail .timeline').waitFor();
  }

  /** Drops files, as from a file manager. */
  async drop(
    files: readonly { readonly name: string; readonly type: string; readonly body: Uint8Array }[],
  ): Promise<void> {
    const encoded = files.map(({ name, type, body }) => ({ name, type, body: Buffer.from(body).toString('base64') }));
    await this.page.evaluate((list) => {
      const dataTransfer = new DataTransfer();
      for (const { name, type, body } of list) {
        const bytes = Uint8Array.from(atob(body), (each) => each.charCodeAt(0));
        dataTransfer.items.add(new File([bytes], name, { type }));
      }
      const target = document.querySelector('drop-zone') ?? document.body;
      for (const kind of ['dragenter', 'dragover', 'drop']) {
        target.dispatchEvent(new DragEvent(kind, { dataTransfer, bubbles: true, cancelable: true }));
      }
    }, encoded);
  }

  /** Slows down what the page sends, to so many bytes a second. */
  async throttle(bytesPerSecond: number | undefined): Promise<void> {
    // What one session slows down, no other session makes fast again.
    this.#session ??= this.#context.newCDPSession(this.page);
    const session = await this.#session;
    const uploadThroughput = bytesPerSecond ?? -1;
    const conditions = { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput };
    await session.send('Network.emulateNetworkConditions', conditions);
  }

  /** Forgets the complaints that a test causes. */
  forgive(expected: RegExp): void {
    const others = this.complaints.filter((each) => !expected.test(each));
    this.complaints.splice(0, this.complaints.length, ...others);
  }

  /** The part of the page that cannot be seen without scrolling to the side, in pixels. */
  overflow(): Promise<number> {
    return this.page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  }

  /** Closes the window. Fails if anything happened that must not happen. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.#context.close();
    expect(this.complaints).toEqual([]);
  }
}

/**
 * What axe finds in a part of the page, in a form that a failed test can show.
 * @param rules default: all.
 */
export async function violations(page: Page, selector: string, rules?: readonly string[]): Promise<readonly string[]> {
  // axe is once in each page, which is not loaded again.
  if (!(await page.evaluate(() => 'axe' in globalThis))) await page.evaluate(AXE);
  const options = { resultTypes: ['violations'], ...(rules === undefined ? {} : { runOnly: rules }) };
  const { violations: found } = await page.evaluate(
    ([part, chosen]) => (globalThis as unknown as Axe).axe.run(part, chosen),
    [selector, options] as const,
  );
  return found.flatMap(({ id, nodes }) =>
    nodes.map(({ html, failureSummary }) => `${id}: ${html.slice(0, 300)} ${failureSummary}`),
  );
}

/** The window, once axe is in it. */
interface Axe {
  readonly axe: { run(selector: string, options: object): Promise<AxeResults> };
}
