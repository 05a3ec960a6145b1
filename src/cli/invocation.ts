/** How to call this program again from the same folder, so that a command that is shown works as it is typed. */
import { existsSync, readFileSync, realpathSync } from 'node:fs'
import { delimiter, extname, join, relative } from 'node:path'
import { fileURLToPath } from 'node:url'
import { describeConfig, describeSettings } from '../config.ts'
import type { Io } from './output.ts'
import type { Session } from './session.ts'

const mainFile = fileURLToPath(new URL(`./main${extname(import.meta.url)}`, import.meta.url))

/** `busbar` when it is installed, `npx busbar` in a project or a clone that has it, else by its path. */
export function invocation({ env, cwd }: Pick<Io, 'env' | 'cwd'>): string {
  if (isOnPath(env.PATH ?? '')) return 'busbar'
  if (existsSync(join(cwd, 'node_modules/.bin/busbar')) || isPackage(cwd)) return 'npx busbar'
  return `node ${shellWord(relative(cwd, mainFile))}`
}

function isOnPath(path: string): boolean {
  // npm and npx put these in front of the PATH of what they run; the shell of the reader does not have them.
  const folders = path.split(delimiter).filter((folder) => folder !== '' && !folder.endsWith('node_modules/.bin'))
  return folders.some((folder) => isThis(join(folder, 'busbar')))
}

function isThis(file: string): boolean {
  return existsSync(file) && realpathSync(file) === realpathSync(mainFile)
}

function isPackage(folder: string): boolean {
  try {
    return JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')).name === 'busbar'
  } catch {
    return false
  }
}

export function shellWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`
}

/** As short as it can be typed from this folder. */
export function shownPath(path: string, cwd: string): string {
  const short = relative(cwd, path)
  return short === '' ? '.' : short.startsWith('..') ? path : short
}

/** A command of this program that meets the same namespace when it is typed in this folder. */
export const commandLine = (session: Pick<Session, 'io' | 'config'>, command: string): string =>
  `${invocation(session.io)} ${command}${sameSettings(session)}`

/** Flags that another process must be given to meet this one; file and environment it finds by itself. */
function sameSettings({ config }: Pick<Session, 'config'>): string {
  const shared: readonly string[] = ['config', 'redis', 'dataDir', 'namespace']
  const flags = new Map(describeSettings().map(({ name, flag }) => [name, flag]))
  return describeConfig(config)
    .filter(({ name, source }) => source === 'flag' && shared.includes(name))
    .map(({ name, value }) => ` ${flags.get(name)} ${shellWord(value)}`)
    .join('')
}
