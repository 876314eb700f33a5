import { readFileSync } from 'node:fs';
import { commandOptions, orExit, UsageError } from './options.ts';

const COMMAND = 'npm run -s release-notes';
const USAGE = `Prints the text of a release: the section of CHANGELOG.md. Fails if the release is not prepared.

  ${COMMAND} -- TAG

  TAG       v and the version of package.json, such as v1.2.3
  --help    show this

The topmost section of CHANGELOG.md must be that of the version, and say under "When upgrading" what to do.
`;

const { positionals } = commandOptions({ command: COMMAND, options: {}, allowPositionals: true }, USAGE);
process.stdout.write(
  orExit(COMMAND, () => {
    const [tag, other] = positionals;
    if (tag === undefined || other !== undefined) throw new UsageError('expected one tag, such as v1.2.3');
    return releaseNotes(tag);
  }),
);

/** @throws {UsageError} */
function releaseNotes(tag: string): string {
  const { version } = JSON.parse(readFileSync('package.json', 'utf8'));
  const locked = JSON.parse(readFileSync('package-lock.json', 'utf8')).version;
  if (tag !== `v${version}`) throw new UsageError(`the tag is ${tag}, but the version in package.json is ${version}`);
  if (locked !== version) throw new UsageError(`the version in package-lock.json is ${locked}, not ${version}`);
  const [, section = ''] = readFileSync('CHANGELOG.md', 'utf8').split(/^## /m);
  const [title, ...lines] = section.split('\n');
  if (title !== version) throw new UsageError(`the topmost section of CHANGELOG.md is "${title}", not "${version}"`);
  const text = lines.join('\n').trim();
  if (!/^### When upgrading\b.*\n+[^#\s]/m.test(text)) {
    throw new UsageError('the section of CHANGELOG.md does not say under "### When upgrading" what to do');
  }
  return `${withAbsoluteLinks(text, tag)}\n`;
}

/** A release is shown on another page than the changelog, so links to files of the repository would be broken there. */
function withAbsoluteLinks(text: string, tag: string): string {
  const { GITHUB_SERVER_URL, GITHUB_REPOSITORY } = process.env;
  if (GITHUB_SERVER_URL === undefined || GITHUB_REPOSITORY === undefined) return text;
  const files = `${GITHUB_SERVER_URL}/${GITHUB_REPOSITORY}/blob/${tag}`;
  return text.replaceAll(/\]\((?!\w+:|#)/g, `](${files}/`);
}
