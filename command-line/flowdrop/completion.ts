import { Argument, Command, type Option } from 'commander';
import { type Add, example } from './add.ts';
import { EXIT_OK } from './run.ts';

/** What may stand in a place: one of these words, a file of this machine, or what the script cannot know. */
type Values = readonly string[] | 'file' | 'unknown';

interface KnownOption {
  /** Such as `--help` and `-h`. */
  readonly names: readonly string[];
  readonly description: string;
  /** Undefined: it takes no value. */
  readonly values: Values | undefined;
}

interface KnownCommand {
  readonly name: string;
  readonly description: string;
  /** Without the options of every command. */
  readonly options: readonly KnownOption[];
  /** Of its arguments. */
  readonly values: Values;
}

interface Known {
  readonly commands: readonly KnownCommand[];
  /** The options of every command. */
  readonly common: readonly KnownOption[];
}

const SCRIPTS = { bash: bashScript, zsh: zshScript, fish: fishScript } as const;

/** Placeholders of the help for a file of this machine: `explain <file>`. */
const FILES: readonly string[] = ['file', 'folder', 'paths'];

const HOW_TO_LOAD = `
To have it in each new shell:
  bash  echo 'eval "$(flowdrop completion bash)"' >> ~/.bashrc
  zsh   echo 'eval "$(flowdrop completion zsh)"' >> ~/.zshrc
  fish  flowdrop completion fish > ~/.config/fish/completions/flowdrop.fish`;

/** The command that tells a shell what the others take. It needs no pipeline. */
export function addCompletion(add: Add, program: Command): void {
  const command = new Command('completion')
    .description('prints a script with which a shell completes commands, options and their values')
    .addArgument(new Argument('<shell>', 'the shell').choices(Object.keys(SCRIPTS)))
    .addHelpText('after', `${example('completion bash')}\n${HOW_TO_LOAD}`);
  add(command, async () => EXIT_OK, {
    async offline({ console }, _, [shell]) {
      const script = SCRIPTS[shell as keyof typeof SCRIPTS](knownOf(program));
      console.answer({ shell, script: `${script}\n` }, () => script.split('\n'));
      return EXIT_OK;
    },
  });
}

/** Reads what the help is made from. */
function knownOf(program: Command): Known {
  const help = program.createHelp();
  const commands = help.visibleCommands(program);
  const names = commands.map((command) => command.name());
  const ownOptions = (command: Command) => help.visibleOptions(command).filter(({ long }) => long !== '--help');
  return {
    common: help.visibleOptions(program).map(knownOption),
    commands: commands.map((command) => {
      const [argument] = command.registeredArguments;
      const values = command.name() === 'help' ? names : valuesOf(argument?.argChoices, argument?.name());
      const options = ownOptions(command).map(knownOption);
      return { name: command.name(), description: command.description(), options, values };
    }),
  };
}

function knownOption({ long, short, description, flags, argChoices }: Option): KnownOption {
  const [, placeholder] = /[<[](\w+)/.exec(flags) ?? [];
  const values = placeholder === undefined ? undefined : valuesOf(argChoices, placeholder);
  return { names: [long, short].filter((name) => name != null), description, values };
}

const valuesOf = (choices: readonly string[] | undefined, placeholder = ''): Values =>
  choices ?? (FILES.includes(placeholder) ? 'file' : 'unknown');

const namesOf = (options: readonly KnownOption[]): readonly string[] => options.flatMap(({ names }) => names);

const takingValue = (options: readonly KnownOption[]): readonly KnownOption[] =>
  options.filter(({ values }) => values !== undefined);

/** A text in quotes, for each of the three shells. No text has a backslash, which fish would obey. */
const quote = (text: string): string => `'${text.replaceAll("'", String.raw`'\''`)}'`;

/** Runs in bash 3.2 too, which macOS has. A slash stands for the files, because it is no word of a list. */
function bashScript({ commands, common }: Known): string {
  const wordsOf = (values: Values | undefined): string =>
    quote(values === 'file' ? '/' : values === undefined || values === 'unknown' ? '' : values.join(' '));
  const afterOptions = (command: string, options: readonly KnownOption[]) =>
    takingValue(options).map(({ names, values }) => {
      const pattern = names.map((name) => `${command}:${name}`).join('|');
      return `    ${pattern}) ${values === 'unknown' ? 'return' : `words=${wordsOf(values)}`} ;;`;
    });
  return `_flowdrop() {
  local IFS=$' \\t\\n' word=\${COMP_WORDS[COMP_CWORD]} before=\${COMP_WORDS[COMP_CWORD-1]}
  local command='' options='' words=${quote(commands.map(({ name }) => name).join(' '))} i
  # Bash takes the = of --by=day for a word of its own.
  if [[ $word == = ]]; then word=''; elif [[ $before == = ]]; then before=\${COMP_WORDS[COMP_CWORD-2]}; fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    case \${COMP_WORDS[i]} in
      ${namesOf(takingValue(common)).join('|')}) [[ \${COMP_WORDS[i+1]} == = ]] && ((i++)); ((i++)) ;;
      -*) ;;
      *) command=\${COMP_WORDS[i]}; break ;;
    esac
  done
  case $command in
${commands.map(({ name, options, values }) => `    ${name}) options=${quote(namesOf(options).join(' '))} words=${wordsOf(values)} ;;`).join('\n')}
  esac
  case $command:$before in
${[...afterOptions('*', common), ...commands.flatMap(({ name, options }) => afterOptions(name, options))].join('\n')}
    *) if [[ $word == -* || -z $words ]]; then words="$options ${namesOf(common).join(' ')}"; fi ;;
  esac
  if [[ $words == / ]]; then
    IFS=$'\\n'
    compopt -o filenames 2>/dev/null
    COMPREPLY=($(compgen -f -- "$word"))
  else
    COMPREPLY=($(compgen -W "$words" -- "$word"))
  fi
}
complete -F _flowdrop flowdrop`;
}

function zshScript({ commands, common }: Known): string {
  const inSpec = (text: string): string => text.replaceAll(/[[\]:]/g, String.raw`\$&`);
  const actionOf = (values: Values): string =>
    values === 'file' ? '_files' : values === 'unknown' ? '()' : `(${values.join(' ')})`;
  const specsOf = (options: readonly KnownOption[]) =>
    options.flatMap(({ names, description, values }) =>
      names.map((name) => {
        const value = values === undefined ? '' : `:value:${actionOf(values)}`;
        return quote(`${name}${values === undefined ? '' : '='}[${inSpec(description)}]${value}`);
      }),
    );
  return `_flowdrop() {
  local curcontext=$curcontext state line
  local -a common=(
    ${specsOf(common).join('\n    ')}
  )
  local -a commands=(
    ${commands.map(({ name, description }) => quote(`${name}:${description}`)).join('\n    ')}
  )
  _arguments -C -A '-*' $common '1: :->command' '*:: :->words'
  case $state in
    command) _describe command commands ;;
    words)
      case $line[1] in
${commands
  .map(({ name, options, values }) => {
    const specs = [...specsOf(options), quote(`*:word:${actionOf(values)}`)];
    return `        ${name}) _arguments $common \\\n          ${specs.join(' \\\n          ')} ;;`;
  })
  .join('\n')}
      esac ;;
  esac
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
compdef _flowdrop flowdrop`;
}

function fishScript({ commands, common }: Known): string {
  const valuesFor = (values: Values): string =>
    values === 'file' ? ' -r -F' : values === 'unknown' ? ' -x' : ` -x -a ${quote(values.join(' '))}`;
  const optionsOf = (options: readonly KnownOption[], condition = '') =>
    options.map(({ names, description, values }) => {
      const named = names.map((name) => (name.startsWith('--') ? ` -l ${name.slice(2)}` : ` -s ${name.slice(1)}`));
      const value = values === undefined ? '' : valuesFor(values);
      return `complete -c flowdrop${condition}${named.join('')}${value} -d ${quote(description)}`;
    });
  return `function __flowdrop_command
    set -l words (commandline -opc)
    set -e words[1]
    while set -q words[1]
        switch $words[1]
            case ${namesOf(takingValue(common)).join(' ')}
                set -e words[1]
            case '-*'
            case '*'
                echo $words[1]
                return
        end
        set -e words[1]
    end
    echo none
end
complete -c flowdrop -f
${optionsOf(common).join('\n')}
${commands
  .flatMap(({ name, description, options, values }) => {
    const condition = ` -n 'test (__flowdrop_command) = ${name}'`;
    return [
      `complete -c flowdrop -n 'test (__flowdrop_command) = none' -a ${name} -d ${quote(description)}`,
      ...optionsOf(options, condition),
      ...(values === 'unknown'
        ? []
        : [`complete -c flowdrop${condition}${values === 'file' ? ' -F' : valuesFor(values)}`]),
    ];
  })
  .join('\n')}`;
}
