import { type ChosenFile, ITEMS_MAX } from './outbox.ts';

/** Files that were dropped or chosen. */
export interface Choice {
  readonly files: readonly ChosenFile[];
  /** Hidden files in folders, which nobody means to send: `.DS_Store`, `.git/config`. */
  readonly hidden: number;
}

/** The files of a file dialog. A folder's files have their path in it. */
export function chosenFiles(list: FileList): Choice {
  return withoutHidden(Array.from(list, (file) => ({ key: file.webkitRelativePath || file.name, file })));
}

/** The files and folders that were dropped. Must be called while the event is handled: the browser empties it then. */
export async function droppedFiles({ items, files }: DataTransfer): Promise<Choice> {
  const entries = Array.from(items, (item) => item.webkitGetAsEntry()).filter((entry) => entry !== null);
  if (entries.length === 0) return chosenFiles(files);
  const found: ChosenFile[] = [];
  for (const entry of entries) await collect(entry, found);
  return withoutHidden(found);
}

async function collect(entry: FileSystemEntry, found: ChosenFile[]): Promise<void> {
  // One more than the list takes, so that the list says that it is full.
  if (found.length > ITEMS_MAX) return;
  if (isFile(entry)) {
    const file = await new Promise<File>((resolve, reject) => entry.file(resolve, reject));
    found.push({ key: entry.fullPath.replace(/^\//, ''), file });
  } else if (isDirectory(entry)) {
    const reader = entry.createReader();
    for (;;) {
      // A reader gives a part of the folder at a time, and nothing at its end.
      const part = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
      if (part.length === 0) return;
      for (const each of part) await collect(each, found);
    }
  }
}

const isFile = (entry: FileSystemEntry): entry is FileSystemFileEntry => entry.isFile;
const isDirectory = (entry: FileSystemEntry): entry is FileSystemDirectoryEntry => entry.isDirectory;

function withoutHidden(files: readonly ChosenFile[]): Choice {
  const shown = files.filter(({ key }) => !key.includes('/') || !key.split('/').some((part) => part.startsWith('.')));
  return { files: shown, hidden: files.length - shown.length };
}
