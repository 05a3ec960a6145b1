/**
 * A build without operations, for comparison: a copy of dist/ whose scripts have nothing of them. It lies within the project, so that it finds
 * the same packages.
 */
import { cpSync, rmSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const dist = fileURLToPath(new URL('../../dist', import.meta.url))
const copy = fileURLToPath(new URL('../dist/without-operations', import.meta.url))

/** Answers the module that is busbar. */
export function buildWithoutOperations() {
  rmSync(copy, { recursive: true, force: true })
  cpSync(dist, copy, { recursive: true })
  writeFileSync(`${copy}/lanes/operations.part.lua`, '')
  return `${copy}/index.js`
}
