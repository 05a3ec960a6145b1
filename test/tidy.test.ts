/** The rules of the repository: layers, docs that list what the code has, tags that stand for rows. */
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { describe, expect, test } from 'vitest'
import { errorTable } from '../src/errors.ts'
import { telemetryTable } from '../src/runtime/telemetry.ts'

const root = resolve(import.meta.dirname, '..')
const read = (path: string) => readFileSync(join(root, path), 'utf8')
const filesIn = (folder: string, ending: string): string[] =>
  readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith(ending) && !entry.parentPath.includes('node_modules'))
    .map((entry) => relative(root, join(entry.parentPath, entry.name)))

/** First cells of a document's table rows, without backticks. */
const listed = (doc: string, cell: RegExp): string[] => [...read(doc).matchAll(cell)].map((found) => found[1]!)

// Each folder may import those in its row, itself, and the vocabulary in src/*.ts.
const layers: Record<string, readonly string[]> = {
  runtime: [],
  redis: ['runtime'],
  log: ['redis', 'runtime'],
  group: ['redis', 'runtime'],
  lanes: ['redis', 'runtime'],
  publish: ['log', 'redis', 'runtime'],
  tasks: ['group', 'publish', 'log', 'redis', 'runtime'],
  route: ['group', 'log', 'redis', 'runtime'],
  'sinks/stream': ['group', 'log', 'redis', 'runtime'],
  operations: ['route', 'lanes', 'log', 'redis', 'runtime'],
  'sinks/queue': ['operations', 'route', 'lanes', 'publish', 'log', 'redis', 'runtime'],
  'sinks/webhook': ['route', 'lanes', 'log', 'redis', 'runtime'],
  'sinks/live': ['log', 'redis', 'runtime'],
  http: ['operations', 'log', 'redis', 'runtime', 'sinks/live', 'sinks/queue', 'sinks/stream', 'sinks/webhook'],
  cli: ['operations', 'log', 'redis', 'runtime', 'http', 'client', 'sinks/queue', 'sinks/stream', 'sinks/webhook'],
  testing: ['redis', 'runtime'],
  // What receivers use must load neither Redis nor a server.
  client: ['sinks/webhook'],
}
// The root files that stand above the folders: only doors may import them.
const above = [
  'bus.ts',
  'bus-types.ts',
  'publishing.ts',
  'consuming.ts',
  'bus-options.ts',
  'bus-internals.ts',
  'backbone.ts',
  'index.ts',
  'config.ts',
]

const layerOf = (path: string): string => {
  const folder = dirname(path).replace(/^src\/?/, '')
  return Object.keys(layers).find((layer) => folder === layer || folder.startsWith(`${layer}/`)) ?? folder
}

describe('layers', () => {
  test.each(filesIn('src', '.ts'))('%s imports downwards only', (path) => {
    const own = layerOf(path)
    if (own === '') return
    expect(Object.keys(layers)).toContain(own)
    for (const [, target] of read(path).matchAll(/(?:from|import\() ?'(\.[^']+)'/g)) {
      const imported = relative(root, resolve(root, dirname(path), target!))
      const layer = layerOf(imported)
      if (layer === '') {
        if (own !== 'http' && own !== 'cli')
          expect(above, `${path} imports ${imported}`).not.toContain(relative('src', imported))
      } else if (layer !== own) expect(layers[own], `${path} imports ${imported}`).toContain(layer)
    }
  })

  test('no file is unreachable from the public API, the command line or a script', () => {
    const seen = new Set<string>()
    const open = ['src/index.ts', 'src/testing.ts', 'src/client.ts', 'src/cli/main.ts']
    for (let path = open.pop(); path !== undefined; path = open.pop()) {
      if (seen.has(path)) continue
      seen.add(path)
      for (const [, target] of read(path).matchAll(/(?:from|import\(|import|new URL\() ?'(\.[^']+)'/g)) {
        const imported = relative(root, resolve(root, dirname(path), target!))
        if (/\.(ts|mjs|lua)$/.test(imported)) open.push(imported)
      }
    }
    const all = [...filesIn('src', '.ts'), ...filesIn('src', '.lua'), ...filesIn('src', '.mjs')]
    expect(all.filter((path) => !seen.has(path))).toEqual([])
  })

  test('only the doors and the embedded Redis read the environment', () => {
    const readers = filesIn('src', '.ts').filter((path) => read(path).includes('process.env'))
    const mayRead = /^src\/(cli\/|testing\/|redis\/embedded\.ts$)/
    expect(readers.filter((path) => !mayRead.test(path))).toEqual([])
  })
})

describe('documents', () => {
  test('docs/errors.md lists every code with its status', () => {
    const rows = [...read('docs/errors.md').matchAll(/^\| `([A-Z_]+)` \| (\d+) \| (yes|no) \|/gm)].map((row) =>
      row.slice(1),
    )
    const codes = Object.entries(errorTable).map(([code, { status, retryable }]) => [
      code,
      String(status),
      retryable ? 'yes' : 'no',
    ])
    expect(rows).toEqual(codes)
  })

  test('docs/telemetry.md lists every event with its level', () => {
    const rows = [...read('docs/telemetry.md').matchAll(/^\| `([a-z.-]+)` \| (\w+) \| (.*) \|$/gm)].map((row) =>
      row.slice(1),
    )
    expect(rows).toEqual(Object.entries(telemetryTable).map(([name, [level, sentence]]) => [name, level, sentence]))
  })

  test('every telemetry event is emitted somewhere', () => {
    const code = filesIn('src', '.ts')
      .filter((path) => !path.endsWith('telemetry.ts'))
      .map(read)
      .join('\n')
    expect(Object.keys(telemetryTable).filter((name) => !code.includes(`'${name}'`))).toEqual([])
  })

  test('every error code is used somewhere', () => {
    const code = filesIn('src', '.ts')
      .filter((path) => path !== 'src/errors.ts')
      .map(read)
      .join('\n')
    expect(Object.keys(errorTable).filter((name) => !code.includes(`'${name}'`))).toEqual([])
  })

  test('CHANGELOG.md has something under Unreleased', () => {
    expect(read('CHANGELOG.md')).toMatch(/## Unreleased\n\n- /)
  })

  test('links between documents lead somewhere', () => {
    const docs = ['README.md', 'ARCHITECTURE.md', 'CONTRIBUTING.md', ...filesIn('docs', '.md')]
    for (const doc of docs)
      for (const [, target] of read(doc).matchAll(/\]\((?!https?:)([^)#]+)/g))
        expect(() => readFileSync(resolve(root, dirname(doc), target!)), `${doc} → ${target}`).not.toThrow(/ENOENT/)
  })
})

describe('features', () => {
  const rows = listed('docs/features.md', /^\| ([A-Z]\d\d) \|/gm)
  const tests = [...filesIn('test', '.test.ts')].map(read).join('\n')
  const tags = new Set([...tests.matchAll(/\[([PLSQWROHDC]\d\d)\]/g)].map((found) => found[1]!))

  test('every row has a test with its tag', () => {
    expect(rows.filter((row) => !tags.has(row))).toEqual([])
  })

  test('every tag stands for a row', () => {
    expect([...tags].filter((tag) => !rows.includes(tag)).sort()).toEqual([])
  })
})
