/**
 * Module hooks for `busbar worker`: TypeScript is compiled in memory, one file at a time.
 *
 * Node runs them in a thread of their own. A `.ts` or `.mts` file is an ES module; its types are dropped, not checked,
 * and tsconfig.json is not read. Imports between TypeScript files are found as the type checker finds them: without an
 * extension, or with the `.js` that the compiled file would have. Everything else is left to Node.
 */
import { existsSync, statSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { fileURLToPath } from 'node:url'

const idleMs = 1_000
const isTypeScript = (url = '') => /^file:.*\.m?ts$/.test(url)
const isRelative = (specifier) => /^(\.\.?\/|\/|file:)/.test(specifier)

export async function resolve(specifier, context, next) {
  if (!isTypeScript(context.parentURL) || !isRelative(specifier)) return next(specifier, context)
  const url = new URL(specifier, context.parentURL).href
  const meant = [...typeScriptFor(url), url, ...withoutExtension(url)].find(isFile)
  return next(meant ?? specifier, context)
}

/** What a `.js` may stand for comes before it: the file beside it may be the build of last week. */
function typeScriptFor(url) {
  return /\.m?js$/.test(url) ? [url.replace(/js$/, 'ts')] : []
}

function withoutExtension(url) {
  const endings = ['.ts', '.mts', '.js', '.mjs']
  return [...endings.map((ending) => url + ending), ...endings.map((ending) => `${url}/index${ending}`)]
}

function isFile(url) {
  const path = fileURLToPath(url)
  return existsSync(path) && statSync(path).isFile()
}

export async function load(url, context, next) {
  if (!isTypeScript(url)) return next(url, context)
  return { format: 'module', shortCircuit: true, source: await compile(fileURLToPath(url)) }
}

let compiling = 0
let idle

async function compile(file) {
  // Only here: who has no TypeScript does not wait for a compiler.
  const { transform, stop } = await import('esbuild')
  const options = { loader: 'ts', format: 'esm', target: 'node20', sourcemap: 'inline', logLevel: 'silent' }
  clearTimeout(idle)
  compiling += 1
  try {
    return (await transform(await readFile(file, 'utf8'), { ...options, sourcefile: file })).code
  } finally {
    compiling -= 1
    // The compiler is a process; modules are loaded at the start, and a worker runs for weeks.
    if (compiling === 0) idle = setTimeout(stop, idleMs).unref()
  }
}
