/**
 * A build without operations, for comparison: a copy of dist/ whose scripts have nothing of them. It lies among the project's packages, so that it
 * finds the same ones.
 */
import { cpSync, rmSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('../../', import.meta.url))
const copy = `${root}node_modules/.cache/without-operations`

/** Answers the module that is busbar. */
export function buildWithoutOperations() {
  rmSync(copy, { recursive: true, force: true })
  for (const part of ['dist', 'package.json']) cpSync(`${root}${part}`, `${copy}/${part}`, { recursive: true })
  for (const part of ['operations', 'operation-index', 'operation-ends', 'operation-entry'])
    writeFileSync(`${copy}/dist/lanes/${part}.part.lua`, '')
  return `${copy}/dist/index.js`
}
