/**
 * The modules that `busbar worker` is given: found by path or pattern, loaded, and searched for buses.
 *
 * They are other people's code. Whatever is wrong with one is said in one message that names its file and, where it is
 * known, the line; nothing of our own calls appears in it.
 */
import { existsSync, readFileSync, statSync } from 'node:fs'
import { register } from 'node:module'
import { basename, extname, join, relative, resolve } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import type { Bus } from '../bus.ts'
import { busMark } from '../bus-internals.ts'
import { BusbarError, shown } from '../errors.ts'
import { glob, hasWildcard } from './glob.ts'
import { shownPath } from './invocation.ts'

type Exports = Readonly<Record<string, unknown>>

const isModule = (path: string): boolean => /\.[cm]?js$|(?<!\.d)\.m?ts$/.test(path)

/** Absolute paths, each once, in the order given. A file of that very name comes before what it means as a pattern. */
export function findModules(wanted: readonly string[], cwd: string): string[] {
  const found = wanted.flatMap((path) => {
    const exact = resolve(cwd, path)
    if (existsSync(exact)) return [checkFile(exact, path)]
    const fitting = hasWildcard(path) ? glob(path, cwd).filter(isModule) : []
    if (fitting.length === 0) throw BusbarError.of('MODULE_NOT_FOUND', { path: shown(path), folder: cwd })
    return fitting.map((one) => resolve(cwd, one))
  })
  return [...new Set(found)]
}

function checkFile(exact: string, path: string): string {
  const isFolder = statSync(exact).isDirectory()
  if (!isFolder && isModule(exact)) return exact
  const problem = isFolder
    ? `is a folder; name its modules, as in ${join(path, '*.ts')}`
    : 'must be a module: .ts, .mts, .js, .mjs or .cjs'
  throw BusbarError.of('PARAMETER_INVALID', { name: 'modules', value: shown(path), problem })
}

/** Loads one after the other, in order. MODULE_FAILED says which one could not be, and where in it. */
export async function loadModules(files: readonly string[], cwd: string): Promise<Exports[]> {
  register(new URL('./typescript-hooks.mjs', import.meta.url))
  // Else the lines of a stack would be those of the compiled text, which nobody has seen.
  if (files.some((file) => file.endsWith('ts'))) process.setSourceMapsEnabled(true)
  const loaded: Exports[] = []
  for (const file of files) {
    try {
      loaded.push(await import(pathToFileURL(file).href))
    } catch (error) {
      const problem = await problemOf(error, file, cwd)
      throw BusbarError.of('MODULE_FAILED', { file: shownPath(file, cwd), problem }, error)
    }
  }
  return loaded
}

interface Place {
  file: string
  line: number
  /** From 0 on. */
  column: number
}

interface CompilerMessage {
  text: string
  location: Place | null
}

async function problemOf(error: unknown, file: string, cwd: string): Promise<string> {
  if (!(error instanceof Error)) return `it threw ${shown(error)}`
  const [first] = (error as { errors?: CompilerMessage[] }).errors ?? (await syntaxErrors(error, file))
  if (first?.location) return `${first.text} (${placeText(first.location, cwd)})`
  const missing = missingImport(error)
  if (missing) return `${missing.problem} (${placeText(missing.place, cwd)})`
  const place = headOf(error.stack ?? '') ?? placeIn(error.stack ?? '')
  return `${error.message}${place ? ` (${placeText(place, cwd)})` : ''}`
}

/** Node names the file that has the import at the end of its message, and no line. */
function missingImport(error: Error): { problem: string; place: Place } | undefined {
  const [, problem, name, file] = /^(Cannot find \w+ '([^']+)') imported from (\/.*)$/.exec(error.message) ?? []
  if (!problem || !name || !file) return undefined
  return { problem, place: placeOfImport(file, basename(name, extname(name))) }
}

function placeOfImport(file: string, name: string): Place {
  const lines = existsSync(file) ? readFileSync(file, 'utf8').split('\n') : []
  const line = lines.findIndex((text) => /['"]/.test(text) && text.includes(name))
  return line < 0 ? { file, line: 1, column: 0 } : { file, line: line + 1, column: lines[line]!.indexOf(name) }
}

/** Node does not tell where a syntax error is; the compiler looks through what the file imports and does. */
async function syntaxErrors(error: Error, file: string): Promise<CompilerMessage[]> {
  if (error.name !== 'SyntaxError' || placeIn(error.stack ?? '')) return []
  const { build } = await import('esbuild')
  const options = { bundle: true, write: false, packages: 'external', platform: 'node', format: 'esm' } as const
  return build({ ...options, entryPoints: [file], logLevel: 'silent', absWorkingDir: '/' }).then(
    () => [],
    (failure: { errors?: CompilerMessage[] }) => failure.errors ?? [],
  )
}

/** The place that Node writes above an error of an import: file and line, the text of the line, a mark below it. */
function headOf(stack: string): Place | undefined {
  const [, url, line, before] = /^((?:file:\/\/)?\/[^\n]*):(\d+)\n[^\n]*\n( *)\^/.exec(stack) ?? []
  if (!url || !isTheirs(pathOf(url))) return undefined
  return { file: pathOf(url), line: Number(line), column: before!.length }
}

const pathOf = (url: string): string => (url.startsWith('file:') ? fileURLToPath(url) : url)

// Source maps lead from dist/ to src/.
const ours = ['../../dist/', '../../src/'].map((folder) => fileURLToPath(new URL(folder, import.meta.url)))

/** Whether it is a file of the application: neither ours nor a library's. */
const isTheirs = (file: string): boolean =>
  !file.includes('/node_modules/') && !ours.some((folder) => file.startsWith(folder))

/** The first line of a stack that is in a file of the application. */
function placeIn(stack: string): Place | undefined {
  for (const [, url, line, column] of stack.matchAll(/(?:\(|at (?:async )?)((?:file:\/\/)?\/[^\n()]*?):(\d+):(\d+)/g)) {
    const file = pathOf(url!)
    if (isTheirs(file)) return { file, line: Number(line), column: Number(column) - 1 }
  }
  return undefined
}

function placeText({ file, line, column }: Place, cwd: string): string {
  return `${shownPath(resolve('/', file), cwd)}:${line}:${column + 1}`
}

/** Every bus among the exports, each once, whichever copy of this package made it. */
export function findBuses(modules: readonly Exports[], files: readonly string[], cwd: string): Bus[] {
  const buses = new Set(modules.flatMap((exports) => Object.values(exports)).filter(isBus))
  if (buses.size > 0) return [...buses]
  throw BusbarError.of('BUS_NOT_EXPORTED', { files: files.map((file) => relative(cwd, file)) })
}

function isBus(value: unknown): value is Bus {
  return typeof value === 'object' && value !== null && busMark in value
}
